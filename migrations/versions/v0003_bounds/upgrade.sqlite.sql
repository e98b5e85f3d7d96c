CREATE TABLE epoch (
	position INTEGER NOT NULL, 
	opening INTEGER NOT NULL, 
	CONSTRAINT pk_epoch PRIMARY KEY (position), 
	CONSTRAINT ck_epoch_position CHECK (position = 0)
)
 STRICT;

CREATE TRIGGER checkpoint_not_ahead BEFORE INSERT ON checkpoint WHEN (NEW.tree_size > (SELECT coalesce(max(tree_size), 0) FROM checkpoint) AND NEW.tree_size <= (SELECT coalesce(max(position), -1) + 1 FROM entry)) IS NOT TRUE BEGIN SELECT RAISE(ABORT, 'checkpoint is not of the entries that are there'); END;

CREATE TRIGGER tree_node_not_ahead BEFORE INSERT ON tree_node WHEN (NEW.level BETWEEN 0 AND 62 AND NEW.position >= 0 AND NEW.position < (SELECT coalesce(max(position), -1) + 1 FROM entry) >> NEW.level) IS NOT TRUE BEGIN SELECT RAISE(ABORT, 'tree_node is not of the entries that are there'); END;

CREATE TRIGGER seal_not_ahead BEFORE INSERT ON seal WHEN (NEW.tree_size = (SELECT coalesce(max(position), -1) + 1 FROM entry)) IS NOT TRUE BEGIN SELECT RAISE(ABORT, 'seal is not of the entries that are there'); END;
