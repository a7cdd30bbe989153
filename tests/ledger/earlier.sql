BEGIN TRANSACTION;
CREATE TABLE tacit_datasets (
	name TEXT NOT NULL, 
	terms TEXT NOT NULL, 
	mode TEXT, 
	noise TEXT NOT NULL, 
	charges INTEGER NOT NULL, 
	total TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "tacit_datasets" VALUES('undecided','{"budget":{"delta":1e-06,"epsilon":3.0,"filter":null},"order":9.25,"relation":"add_remove","unit":{"column":null,"rows":1}}',NULL,'exact',0,'{"delta": "0", "epsilon": "0", "renyi": "0", "renyi_delta": "0"}');
INSERT INTO "tacit_datasets" VALUES('gaussian first','{"budget":{"delta":1e-06,"epsilon":3.0,"filter":null},"order":9.25,"relation":"add_remove","unit":{"column":null,"rows":1}}','renyi','float64',2,'{"delta": "0.000000124999999999999994343513978235782335701742340461350977420806884765625", "epsilon": "0.5424252955898282435587276495425612665712833404541015625", "renyi": "0.08643330350479504209371128808925277553498744964599609375", "renyi_delta": "0"}');
INSERT INTO "tacit_datasets" VALUES('declared first','{"budget":{"delta":1e-06,"epsilon":3.0,"filter":null},"order":9.25,"relation":"add_remove","unit":{"column":null,"rows":1}}','basic','float64',2,'{"delta": "0.000000010000000000000000209225608301284726753266340892878361046314239501953125", "epsilon": "0.742850365355479880236089229583740234375", "renyi": "0", "renyi_delta": "0"}');
INSERT INTO "tacit_datasets" VALUES('forced','{"budget":{"delta":1e-06,"epsilon":3.0,"filter":"renyi"},"order":9.25,"relation":"add_remove","unit":{"column":null,"rows":1}}','renyi','float64',1,'{"delta": "0.000000010000000000000000209225608301284726753266340892878361046314239501953125", "epsilon": "0.492850365355479880236089229583740234375", "renyi": "0.04624999999999999944488848768742172978818416595458984375", "renyi_delta": "0"}');
CREATE TABLE tacit_entries (
	number INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	dataset TEXT NOT NULL, 
	time TEXT NOT NULL, 
	version TEXT NOT NULL, 
	previous TEXT NOT NULL, 
	label TEXT, 
	scope TEXT, 
	partition TEXT, 
	event TEXT, 
	epsilon DOUBLE, 
	delta DOUBLE, 
	renyi DOUBLE, 
	renyi_delta DOUBLE, 
	mode TEXT, 
	declared_delta DOUBLE, 
	noise TEXT, 
	details TEXT, 
	hash TEXT NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "tacit_entries" VALUES(1,'dataset','undecided','2026-11-17T17:14:07.066060+00:00','0.1.0','0000000000000000000000000000000000000000000000000000000000000000',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"budget":{"delta":1e-06,"epsilon":3.0,"filter":null},"order":9.25,"relation":"add_remove","unit":{"column":null,"rows":1}}','05afc842a4a4ee8fd794173f28c08cedee36089af84ce8cf2b13dd42ebf82b50');
INSERT INTO "tacit_entries" VALUES(2,'dataset','gaussian first','2026-11-17T17:14:07.182244+00:00','0.1.0','05afc842a4a4ee8fd794173f28c08cedee36089af84ce8cf2b13dd42ebf82b50',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"budget":{"delta":1e-06,"epsilon":3.0,"filter":null},"order":9.25,"relation":"add_remove","unit":{"column":null,"rows":1}}','fb0b423c3bd8d96b7b3c5c3f69e576c231e46b8f671b51dce72377559be1938d');
INSERT INTO "tacit_entries" VALUES(3,'charge','gaussian first','2026-11-17T17:14:07.275970+00:00','0.1.0','fb0b423c3bd8d96b7b3c5c3f69e576c231e46b8f671b51dce72377559be1938d','mean',NULL,NULL,'{"is":"gaussian","noise_multiplier":10.0}',4.42425295589828238007e-01,1.25e-07,0.04625,0.0,'renyi',NULL,'float64','{"state":"a97d97afff21eee4c8793e3119df76f7"}','fcaf36ebec3c9bd87158f19f6b22e0809fe4e03bc647f455cd311786fd0b1587');
INSERT INTO "tacit_entries" VALUES(4,'charge','gaussian first','2026-11-17T17:14:07.295910+00:00','0.1.0','fcaf36ebec3c9bd87158f19f6b22e0809fe4e03bc647f455cd311786fd0b1587','count',NULL,NULL,'{"is":"laplace","scale":10.0}',0.1,0.0,4.01833035047950426488e-02,0.0,'renyi',NULL,'float64','{"state":"403f148be492b3b9e4a078ef65847251"}','b4b1ad871f6f469699f03756a8836f146bc1f45d33c2a87afe1793022bfce378');
INSERT INTO "tacit_entries" VALUES(5,'dataset','declared first','2026-11-17T17:14:07.371116+00:00','0.1.0','b4b1ad871f6f469699f03756a8836f146bc1f45d33c2a87afe1793022bfce378',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"budget":{"delta":1e-06,"epsilon":3.0,"filter":null},"order":9.25,"relation":"add_remove","unit":{"column":null,"rows":1}}','1ed22f19434d1a20da9c216b54b24a3225f58e014f349bf40d612f207dabf124');
INSERT INTO "tacit_entries" VALUES(6,'charge','declared first','2026-11-17T17:14:07.451814+00:00','0.1.0','1ed22f19434d1a20da9c216b54b24a3225f58e014f349bf40d612f207dabf124','mean',NULL,NULL,'{"is":"gaussian","noise_multiplier":10.0}',4.92850365355479880236e-01,1.0e-08,0.0,0.0,'basic',1.0e-08,'float64','{"state":"8f46a5c59f51d3432f39b10a8e1e5a08"}','552f8d67b2a6ec0011ec059fc51213d345d2ee1b28471e87ab5fc0bc6753d1f2');
INSERT INTO "tacit_entries" VALUES(7,'scope','declared first','2026-11-17T17:14:07.507414+00:00','0.1.0','552f8d67b2a6ec0011ec059fc51213d345d2ee1b28471e87ab5fc0bc6753d1f2',NULL,'region',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"partitions":["north","south"],"state":"8f46a5c59f51d3432f39b10a8e1e5a08"}','abe6fe81b2cf83d49d412360b80bef63168223e0a88cf1ef34ec637b38ebc331');
INSERT INTO "tacit_entries" VALUES(8,'charge','declared first','2026-11-17T17:14:07.586151+00:00','0.1.0','abe6fe81b2cf83d49d412360b80bef63168223e0a88cf1ef34ec637b38ebc331','count','region','north','{"is":"laplace","scale":4.0}',0.25,0.0,0.0,0.0,'basic',NULL,'float64','{"state":"ea6297b85f3d4dcea6c12e448d1a0ffe","scope":"317f498738e3cebfed752ea3ec8607d0"}','e48be2bc51c816cb3dbe411ab8a132ddf31e220fe5870535a802f18807dce199');
INSERT INTO "tacit_entries" VALUES(9,'dataset','forced','2026-11-17T17:14:07.660288+00:00','0.1.0','e48be2bc51c816cb3dbe411ab8a132ddf31e220fe5870535a802f18807dce199',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"budget":{"delta":1e-06,"epsilon":3.0,"filter":"renyi"},"order":9.25,"relation":"add_remove","unit":{"column":null,"rows":1}}','28f3d53d2b6d7c401e03598f6fc32c7e766dd7b7c1d1db1e35fc30517dedc480');
INSERT INTO "tacit_entries" VALUES(10,'charge','forced','2026-11-17T17:14:07.767054+00:00','0.1.0','28f3d53d2b6d7c401e03598f6fc32c7e766dd7b7c1d1db1e35fc30517dedc480','mean',NULL,NULL,'{"is":"gaussian","noise_multiplier":10.0}',4.92850365355479880236e-01,1.0e-08,0.04625,0.0,'renyi',1.0e-08,'float64','{"state":"428eec938fa34b7809ee2dc11b0926e1"}','3e264027e3245c60365fa950b6cf4ea94491a9632ec59faaaf4cfeb21512a0ba');
CREATE TABLE tacit_partitions (
	dataset TEXT NOT NULL, 
	scope TEXT NOT NULL, 
	name TEXT NOT NULL, 
	total TEXT NOT NULL, 
	PRIMARY KEY (dataset, scope, name)
);
INSERT INTO "tacit_partitions" VALUES('declared first','region','north','{"delta": "0", "epsilon": "0.25", "renyi": "0", "renyi_delta": "0"}');
CREATE TABLE tacit_scopes (
	dataset TEXT NOT NULL, 
	name TEXT NOT NULL, 
	partitions TEXT NOT NULL, 
	PRIMARY KEY (dataset, name)
);
INSERT INTO "tacit_scopes" VALUES('declared first','region','["north", "south"]');
CREATE TABLE tacit_state (
	id INTEGER NOT NULL CHECK (id = 1), 
	schema_version INTEGER NOT NULL, 
	entries INTEGER NOT NULL, 
	head TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "tacit_state" VALUES(1,1,10,'3e264027e3245c60365fa950b6cf4ea94491a9632ec59faaaf4cfeb21512a0ba');
CREATE INDEX tacit_entries_of_runs ON tacit_entries (dataset) WHERE substr(details, 2, 5) = '"run"';
CREATE TRIGGER tacit_no_update BEFORE update ON tacit_entries BEGIN SELECT RAISE(ABORT, 'the entries of a ledger are append-only'); END;
CREATE TRIGGER tacit_no_delete BEFORE delete ON tacit_entries BEGIN SELECT RAISE(ABORT, 'the entries of a ledger are append-only'); END;
COMMIT;
