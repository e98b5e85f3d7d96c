CREATE TABLE stream_version (
	provider TEXT COLLATE "C" NOT NULL, 
	dataset TEXT COLLATE "C" NOT NULL, 
	version BIGINT NOT NULL, 
	document TEXT COLLATE "C" NOT NULL, 
	entered BIGINT NOT NULL, 
	CONSTRAINT pk_stream_version PRIMARY KEY (provider, dataset, version), 
	CONSTRAINT ck_stream_version_version CHECK (version > 0)
);

REVOKE ALL ON stream_version FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON stream_version TO epsilon_writer;
