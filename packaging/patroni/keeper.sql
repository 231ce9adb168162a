-- The role and the database of tollkeeper. Run it once, as the superuser, on the primary.
CREATE ROLE keeper LOGIN PASSWORD 'KEEPER_PASSWORD';
CREATE DATABASE keeper OWNER keeper;
