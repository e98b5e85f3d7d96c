CREATE TABLE extended_quorum (
	organisation TEXT NOT NULL, 
	entered INTEGER NOT NULL, 
	CONSTRAINT pk_extended_quorum PRIMARY KEY (organisation)
)
 STRICT;
