CREATE TABLE seal (
	position INTEGER NOT NULL, 
	successor TEXT NOT NULL, 
	tree_size INTEGER NOT NULL, 
	CONSTRAINT pk_seal PRIMARY KEY (position), 
	CONSTRAINT ck_seal_position CHECK (position = 0), 
	CONSTRAINT ck_seal_tree_size CHECK (tree_size >= 0)
)
 STRICT;

CREATE TRIGGER seal_no_update BEFORE UPDATE ON seal BEGIN SELECT RAISE(ABORT, 'seal is append-only'); END;

CREATE TRIGGER seal_no_delete BEFORE DELETE ON seal BEGIN SELECT RAISE(ABORT, 'seal is append-only'); END;

CREATE TRIGGER seal_no_replace BEFORE INSERT ON seal WHEN EXISTS (SELECT 1 FROM seal WHERE position = NEW.position) BEGIN SELECT RAISE(ABORT, 'seal is append-only'); END;

CREATE TRIGGER entry_not_sealed BEFORE INSERT ON entry WHEN EXISTS (SELECT 1 FROM seal) BEGIN SELECT RAISE(ABORT, 'the book was moved, and takes no more entries'); END;
