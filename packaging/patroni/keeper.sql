-- Creates tollkeeper's role and database. Run it once on the primary, as the superuser.
CREATE ROLE keeper LOGIN PASSWORD 'KEEPER_PASSWORD';
CREATE DATABASE keeper OWNER keeper;
