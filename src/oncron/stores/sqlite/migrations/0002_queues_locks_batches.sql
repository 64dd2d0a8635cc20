-- What a run is part of, and who else has to agree to it.
alter table {ns}_runs add column guard text;
alter table {ns}_runs add column batch text;
alter table {ns}_schedules add column guard text;

create index {ns}_runs_batch on {ns}_runs (batch, state) where batch is not null;
