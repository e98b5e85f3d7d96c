CREATE TABLE extended_quorum (
	organisation TEXT COLLATE "C" NOT NULL, 
	entered BIGINT NOT NULL, 
	CONSTRAINT pk_extended_quorum PRIMARY KEY (organisation)
);

REVOKE ALL ON extended_quorum FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON extended_quorum TO epsilon_writer;
