CREATE TABLE stream_version (
	provider TEXT NOT NULL, 
	dataset TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	document TEXT NOT NULL, 
	entered INTEGER NOT NULL, 
	CONSTRAINT pk_stream_version PRIMARY KEY (provider, dataset, version), 
	CONSTRAINT ck_stream_version_version CHECK (version > 0)
)
 STRICT;
