CREATE TABLE key_terms (
	key_id TEXT COLLATE "C" NOT NULL, 
	owner TEXT COLLATE "C" NOT NULL, 
	starts BIGINT NOT NULL, 
	until BIGINT, 
	suspended_by TEXT COLLATE "C", 
	revoked BIGINT, 
	entered BIGINT NOT NULL, 
	CONSTRAINT pk_key_terms PRIMARY KEY (key_id)
);

CREATE TABLE recovery_quorum (
	organisation TEXT COLLATE "C" NOT NULL, 
	members TEXT COLLATE "C" NOT NULL, 
	threshold BIGINT NOT NULL, 
	entered BIGINT NOT NULL, 
	CONSTRAINT pk_recovery_quorum PRIMARY KEY (organisation)
);

REVOKE ALL ON key_terms FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON key_terms TO epsilon_writer;

REVOKE ALL ON recovery_quorum FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON recovery_quorum TO epsilon_writer;
