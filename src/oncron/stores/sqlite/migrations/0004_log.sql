-- What a run has said, the newest of it: lines of text.
alter table {ns}_runs add column log text;
