CREATE TABLE audit (
	charge TEXT NOT NULL, 
	pipeline TEXT NOT NULL, 
	above INTEGER NOT NULL, 
	entered INTEGER NOT NULL, 
	CONSTRAINT pk_audit PRIMARY KEY (charge), 
	CONSTRAINT ck_audit_above CHECK (above IN (0, 1))
)
 STRICT;
