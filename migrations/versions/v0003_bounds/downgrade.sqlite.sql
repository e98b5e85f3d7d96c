DROP TRIGGER checkpoint_not_ahead;

DROP TRIGGER tree_node_not_ahead;

DROP TRIGGER seal_not_ahead;

DROP TABLE epoch;
