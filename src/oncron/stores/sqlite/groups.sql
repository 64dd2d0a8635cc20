-- The statements on queues, locks, limiters and batches. The marks are those of `queries.sql`.

-- name: queue.get
-- What was said of a queue last.
select paused, note from {ns}_queues where name = :name;

-- name: queue.put
-- A queue is paused or goes on.
insert into {ns}_queues (name, paused, note, changed_at) values (:name, :paused, :note, :now)
on conflict (name) do update set paused = excluded.paused, note = excluded.note, changed_at = excluded.changed_at;

-- name: queue.said
-- (name, paused, note, changed_at) of all that were paused once.
select name, paused, note, changed_at from {ns}_queues;

-- name: queue.counts
-- (queue, ready, waiting, running, the first of the ready ones) of the open runs of one queue, or of all.
select queue,
    sum(state = 'pending' and parked = 0 and due_at <= :now),
    sum(state = 'pending' and not (parked = 0 and due_at <= :now)),
    sum(state = 'running'),
    min(case when state = 'pending' and parked = 0 and due_at <= :now then due_at end)
from {ns}_runs
where ended_at is null and (:name is null or queue = :name)
group by queue;

-- name: lock.holders
-- (token, owner, since, lease_until) of a lock's holders, expired ones too.
select token, owner, since, lease_until from {ns}_holders where name = :name order by token;

-- name: lock.forget_expired
-- They have lost it.
delete from {ns}_holders where name = :name and lease_until <= :now;

-- name: lock.last_token
-- The last token of a name (G5).
select last_token from {ns}_locks where name = :name;

-- name: lock.put_token
-- The newest token of a name.
insert into {ns}_locks (name, last_token) values (:name, :token)
on conflict (name) do update set last_token = excluded.last_token;

-- name: lock.hold
-- One more holder.
insert into {ns}_holders (name, token, owner, since, lease_until) values (:name, :token, :owner, :now, :until);

-- name: lock.prolong
-- A holder's lease ends then.
update {ns}_holders set lease_until = :until where name = :name and token = :token;

-- name: lock.release
-- A holder lets go.
delete from {ns}_holders where name = :name and token = :token;

-- name: lock.list
-- Live holders by (name, token).
select name, owner, token, since, lease_until from {ns}_holders where lease_until > :now order by name, token;

-- name: lock.idle
-- Names that nobody has asked for or held since.
select name from {ns}_locks l
where last_token < :before
    and not exists (select 1 from {ns}_holders h where h.name = l.name and h.lease_until >= :before)
limit :limit;

-- name: lock.forget_holders
-- (name): whoever held it once.
delete from {ns}_holders where name = ?;

-- name: lock.forget
-- (name): its last token.
delete from {ns}_locks where name = ?;

-- name: limiter.get
-- The rule asked by last, and when the bucket is empty.
select kind, amount, per, empty_at from {ns}_limiters where name = :name;

-- name: limiter.put
-- The rule asked by last, and when the bucket is empty.
insert into {ns}_limiters (name, kind, amount, per, empty_at) values (:name, :kind, :amount, :per, :empty_at)
on conflict (name) do update set
    kind = excluded.kind, amount = excluded.amount, per = excluded.per, empty_at = excluded.empty_at;

-- name: limiter.forget
-- Limiters of which nothing counts any more.
delete from {ns}_limiters
where empty_at <= :now and not exists (select 1 from {ns}_takes t where t.limiter = {ns}_limiters.name);

-- name: take.get
-- (cost, empty_at, until) of what was granted under a nonce.
select cost, empty_at, until from {ns}_takes where limiter = :limiter and nonce = :nonce;

-- name: take.put
-- Granted; what the same nonce was granted once is forgotten.
insert or replace into {ns}_takes (limiter, nonce, at, cost, until, empty_at)
values (:limiter, :nonce, :now, :cost, :until, :empty_at);

-- name: take.settle
-- The true cost.
update {ns}_takes set cost = :cost, empty_at = empty_at + :later where limiter = :limiter and nonce = :nonce;

-- name: take.used
-- What was granted after an instant, from the index alone.
select coalesce(sum(cost), 0) from {ns}_takes where limiter = :limiter and at > :since;

-- name: take.frees
-- The instant of the take with which so much of that is gone, the oldest first.
select at from (
    select at, sum(cost) over (order by at, cost rows unbounded preceding) as gone
    from {ns}_takes where limiter = :limiter and at > :since
) where gone >= :needed limit 1;

-- name: take.forget
-- Some of what a limiter need not remember any more.
delete from {ns}_takes
where (limiter, nonce) in (
    select limiter, nonce from {ns}_takes where limiter = :limiter and until <= :now limit :most
);

-- name: take.forget_all
-- The same of every limiter.
delete from {ns}_takes
where (limiter, nonce) in (
    select t.limiter, t.nonce from {ns}_limiters l
    cross join {ns}_takes t on t.limiter = l.name and t.until <= :now
    limit :most
);

-- name: batch.get
-- One batch's row.
select id, parent, data, created_at, closed, invalid, died_at, completed_at, succeeded_at, on_complete, on_success,
       on_death
from {ns}_batches where id = :id;

-- name: batch.open
-- A new batch.
insert into {ns}_batches (id, parent, data, created_at, on_complete, on_success, on_death)
values (:id, :parent, :data, :now, :on_complete, :on_success, :on_death);

-- name: batch.takes_more
-- Which of these are there and not complete.
select b.id from json_each(:ids) j cross join {ns}_batches b on b.id = j.value where b.completed_at is null;

-- name: batch.close
-- Nothing more comes from outside.
update {ns}_batches set closed = 1 where id = :id and closed = 0;

-- name: batch.invalidate
-- Its runs need not do their work.
update {ns}_batches set invalid = 1 where id = :id and invalid = 0;

-- name: batch.delete
-- Forgets a batch; its runs stay.
delete from {ns}_batches where id = :id;

-- name: batch.reopen
-- A run of it was opened again.
update {ns}_batches set reopened = 1 where id = :id and reopened = 0 and succeeded_at is null;

-- name: batch.facts
-- What decides about a batch, each by one look into an index: an open run, a dead one, a cancelled one, a
-- batch in it that is not complete, one that has not succeeded, and whether it was looked at since a
-- run was opened again.
select
    exists (select 1 from {ns}_runs where batch = :id and state in ('pending', 'running')),
    exists (select 1 from {ns}_runs where batch = :id and state in ('failed', 'lost')),
    exists (select 1 from {ns}_runs where batch = :id and state = 'cancelled'),
    exists (select 1 from {ns}_batches where parent = :id and completed_at is null),
    exists (select 1 from {ns}_batches where parent = :id and succeeded_at is null),
    reopened
from {ns}_batches where id = :id;

-- name: batch.settle
-- What has become of it.
update {ns}_batches
set died_at = :died_at, completed_at = :completed_at, succeeded_at = :succeeded_at,
    reopened = iif(:quiet, 0, reopened)
where id = :id;

-- name: batch.runs
-- How many runs are in which state, from the index alone.
select state, count(*) from {ns}_runs where batch = :id group by state;

-- name: batch.children
-- How many batches in it are not complete.
select count(*) from {ns}_batches where parent = :id and completed_at is null;

-- name: batch.known
-- Those of these ids that exist, a page of them.
select b.id from json_each(:ids) j cross join {ns}_batches b on b.id = j.value
where b.id > :after order by b.id limit :limit;

-- name: batch.unsettled
-- All that are not complete or had a run opened again, a page of them.
select id from {ns}_batches
where succeeded_at is null and (completed_at is null or reopened = 1) and id > :after
order by id limit :limit;

-- name: batch.list
-- Newest first, after the one named (an empty id is none).
select id from {ns}_batches
where (:before = '' or (created_at, id) < (select created_at, id from {ns}_batches where id = :before))
    and (:dead = 0 or died_at is not null)
order by created_at desc, id desc
limit :limit;

-- name: batch.prune
-- Batches that completed before, without an open run, and not in a batch that is on record.
delete from {ns}_batches
where id in (
    select id from {ns}_batches b
    where completed_at < :before and completed_at is not null
        and not exists (select 1 from {ns}_runs r where r.batch = b.id and r.state in ('pending', 'running'))
        and (parent is null or not exists (select 1 from {ns}_batches p where p.id = b.parent))
    limit :limit
);
