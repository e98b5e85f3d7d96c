DROP TRIGGER document_no_update;

DROP TRIGGER document_no_delete;

DROP TRIGGER document_no_replace;

ALTER TABLE document RENAME TO document_replaced;

CREATE TABLE document (
	digest TEXT NOT NULL, 
	data BLOB NOT NULL, 
	CONSTRAINT pk_document PRIMARY KEY (digest), 
	CONSTRAINT ck_document_size CHECK (length(data) <= 262144)
)
 WITHOUT ROWID,
 STRICT;

INSERT INTO document (digest, data) SELECT digest, data FROM document_replaced;

DROP TABLE document_replaced;

CREATE TRIGGER document_no_update BEFORE UPDATE ON document BEGIN SELECT RAISE(ABORT, 'document is append-only'); END;

CREATE TRIGGER document_no_delete BEFORE DELETE ON document BEGIN SELECT RAISE(ABORT, 'document is append-only'); END;

CREATE TRIGGER document_no_replace BEFORE INSERT ON document WHEN EXISTS (SELECT 1 FROM document WHERE digest = NEW.digest) BEGIN SELECT RAISE(ABORT, 'document is append-only'); END;
