-- Which store this is: a connection that a caller brings is compared with it. A copy of the database is the same one.
alter table meta add column id uuid not null default gen_random_uuid();
