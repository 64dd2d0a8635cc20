-- How far a worker's own clock is ahead of the store's, in microseconds.
alter table {ns}_workers add column skew integer not null default 0;
