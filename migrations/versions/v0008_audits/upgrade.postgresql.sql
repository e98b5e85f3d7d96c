CREATE TABLE audit (
	charge TEXT COLLATE "C" NOT NULL, 
	pipeline TEXT COLLATE "C" NOT NULL, 
	above BIGINT NOT NULL, 
	entered BIGINT NOT NULL, 
	CONSTRAINT pk_audit PRIMARY KEY (charge), 
	CONSTRAINT ck_audit_above CHECK (above IN (0, 1))
);

REVOKE ALL ON audit FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON audit TO epsilon_writer;
