CREATE TABLE key_terms (
	key_id TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	starts INTEGER NOT NULL, 
	until INTEGER, 
	suspended_by TEXT, 
	revoked INTEGER, 
	entered INTEGER NOT NULL, 
	CONSTRAINT pk_key_terms PRIMARY KEY (key_id)
)
 STRICT;

CREATE TABLE recovery_quorum (
	organisation TEXT NOT NULL, 
	members TEXT NOT NULL, 
	threshold INTEGER NOT NULL, 
	entered INTEGER NOT NULL, 
	CONSTRAINT pk_recovery_quorum PRIMARY KEY (organisation)
)
 STRICT;
