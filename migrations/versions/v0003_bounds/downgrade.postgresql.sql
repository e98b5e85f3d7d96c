DROP TRIGGER seal_not_ahead ON seal;

DROP TRIGGER tree_node_not_ahead ON tree_node;

DROP TRIGGER checkpoint_not_ahead ON checkpoint;

DROP FUNCTION epsilon_guard.refuse_seal_ahead();

DROP FUNCTION epsilon_guard.refuse_node_ahead();

DROP FUNCTION epsilon_guard.refuse_checkpoint_ahead();

GRANT SELECT, INSERT ON seal TO epsilon_writer;

DROP TABLE epoch;
