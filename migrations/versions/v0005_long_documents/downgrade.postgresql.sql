ALTER TABLE document DROP CONSTRAINT ck_document_size;

ALTER TABLE document ADD CONSTRAINT ck_document_size CHECK (length(data) <= 262144);
