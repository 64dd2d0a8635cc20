-- Every statement of the SQLite store. {ns} is the namespace, {run} the columns of a run `r` in
-- the order of RunRecord ({columns} the same without the `r`). Lists travel as one JSON array. `:now` is the step's clock. All writes run
-- under BEGIN IMMEDIATE, so what a step reads first is what it writes against.

-- name: schema.has
-- Whether the file has this namespace's tables.
select 1 from sqlite_master where type = 'table' and name = '{ns}_meta';

-- name: schema.get
-- (major, minor) of the schema.
select schema_major, schema_minor from {ns}_meta;

-- name: schema.begin
-- The one row of a new file.
insert into {ns}_meta (id, schema_major, schema_minor) values (1, :major, :minor);

-- name: schema.raise
-- After an upgrade. A newer minor schema stays what it is.
update {ns}_meta set schema_major = :major, schema_minor = max(schema_minor, :minor);

-- name: meta.get
-- What every step reads first: the clock's last word, the machine, the schedules' version.
select schema_major, now_at, boot_id, version from {ns}_meta;

-- name: meta.now
-- The store's clock has been seen here: it never goes back (part of every write).
update {ns}_meta set now_at = :now where now_at < :now;

-- name: meta.take
-- The file is used by this machine from now on.
update {ns}_meta set boot_id = :boot_id;

-- name: meta.changed
-- So many schedules' definition or status has changed.
update {ns}_meta set version = version + :changes;

-- name: schedule.get
-- Whole rows of the names given that exist, by name.
select s.definition, c.status, c.revision, c.cursor, c.next_at, c.last_token, c.created_count,
       s.created_at, s.changed_at, s.note, s.previous, s.name
from json_each(:names) j
cross join {ns}_schedules s on s.name = j.value
cross join {ns}_cursors c on c.name = s.name
where s.name > :after
    and (:tag is null or :tag in (select t.value from json_each(s.definition, '$.tags') t))
order by s.name
limit :limit;

-- name: schedule.all
-- Whole rows, by name, a page of them.
select s.definition, c.status, c.revision, c.cursor, c.next_at, c.last_token, c.created_count,
       s.created_at, s.changed_at, s.note, s.previous, s.name
from {ns}_schedules s
cross join {ns}_cursors c on c.name = s.name
where s.name > :after
    and (:tag is null or :tag in (select t.value from json_each(s.definition, '$.tags') t))
order by s.name
limit :limit;

-- name: schedule.put
-- A new or changed definition.
insert into {ns}_schedules (name, definition, task, args, queue, priority, retries, retry_delay, timeout,
                            overlap, run_limit, unique_key, guard, created_at, changed_at, note, previous)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (name) do update set
    definition = excluded.definition, task = excluded.task, args = excluded.args, queue = excluded.queue,
    priority = excluded.priority, retries = excluded.retries, retry_delay = excluded.retry_delay,
    timeout = excluded.timeout, overlap = excluded.overlap, run_limit = excluded.run_limit,
    unique_key = excluded.unique_key, guard = excluded.guard, changed_at = excluded.changed_at, note = excluded.note,
    previous = excluded.previous;

-- name: schedule.put_cursor
-- The other half of schedule.put. fire_id is forgotten: something has happened since.
insert into {ns}_cursors (name, revision, status, cursor, next_at)
values (?, ?, ?, ?, ?)
on conflict (name) do update set
    revision = excluded.revision, status = excluded.status, cursor = excluded.cursor,
    next_at = excluded.next_at, fire_id = null, fire_result = null;

-- name: schedule.count
-- (delta, name): scheduled runs created, less those superseded.
update {ns}_cursors set created_count = created_count + ? where name = ?;

-- name: schedule.due
-- Who is due up to the horizon, by (next_at, name), after that pair.
select name, revision, cursor, next_at
from {ns}_cursors
where next_at <= :horizon
    and (next_at, name) > (:after_at, :after_name)
    and name not in (select value from json_each(:exclude))
order by next_at, name
limit :limit;

-- name: schedule.place
-- Overlap policies of the schedules that exist, for judging who may have the place.
select s.name, s.overlap from json_each(:names) j cross join {ns}_schedules s on s.name = j.value;

-- name: schedule.tokens
-- Newest tokens by schedule (G5).
select c.name, c.last_token from json_each(:names) j cross join {ns}_cursors c on c.name = j.value;

-- name: schedule.put_token
-- (token, name): the newest token of a schedule.
update {ns}_cursors set last_token = ? where name = ?;

-- name: fire.rows
-- What the compare-and-set compares, and what the judgement needs of the definition.
select c.name, c.revision, c.status, c.cursor, c.created_count, c.fire_id, c.fire_result,
       s.overlap, s.run_limit, s.unique_key, s.task, s.queue, s.priority
from json_each(:names) j
cross join {ns}_cursors c on c.name = j.value
cross join {ns}_schedules s on s.name = c.name;

-- name: fire.newest_tzdata
-- The newest zone data of a live scheduler.
select max(w.tzdata) from {ns}_workers w, json_each(w.roles) r
where r.value = 'scheduler' and w.has_left = 0 and w.lease_until > :now;

-- name: set.note
-- A replica declares this set now.
update {ns}_sets set noted_at = :now where id = :id;

-- name: set.put
-- The names of a set, as JSON.
insert into {ns}_sets (id, names, noted_at) values (:id, :names, :now)
on conflict (id) do update set names = excluded.names, noted_at = excluded.noted_at;

-- name: set.forget
-- Sets that nobody has noted since.
delete from {ns}_sets where noted_at < :before;

-- name: set.unheld
-- Active schedules of code that changed before and are in no set.
select s.name from {ns}_schedules s cross join {ns}_cursors c on c.name = s.name
where c.status = 'active' and s.changed_at < :before and json_extract(s.definition, '$.origin') is not 'api'
  and s.name not in (select j.value from {ns}_sets t, json_each(t.names) j)
order by s.name limit :limit;

-- name: fire.on_record
-- Which of these runs exist: the second belt of G1.
select r.id from json_each(:ids) j cross join {ns}_runs r on r.id = j.value;

-- name: fire.insert_run
-- (seq, run id, tick, due_at, created_at, serial, parked, is_catchup, missed_count, name): a tick becomes
-- a run; task, args and options are the definition's.
insert into {ns}_runs (seq, id, tick, due_at, created_at, serial, parked, is_catchup, missed_count,
                       schedule, task, args, queue, priority, retries, retry_delay, timeout, unique_key, guard)
select ?, ?, ?, ?, ?, ?, ?, ?, ?, name, task, args, queue, priority, retries, retry_delay, timeout, unique_key, guard
from {ns}_schedules where name = ?;

-- name: fire.move_cursor
-- (cursor, next_at, created, fire_id, result, name): the ticks are settled (G3); fire_id and result
-- make the repetition known (G7), a null result says that every tick became a run.
update {ns}_cursors
set cursor = ?, next_at = ?, created_count = created_count + ?, fire_id = ?, fire_result = ?
where name = ?;

-- name: gap.newest
-- The newest gap of each schedule named: (seq, schedule, last, reason).
select g.seq, g.schedule, g.last, g.reason
from json_each(:names) j
cross join {ns}_gaps g on g.seq = (select max(seq) from {ns}_gaps where schedule = j.value);

-- name: gap.insert
-- A new gap (G11).
insert into {ns}_gaps (schedule, first, last, count, reason, at_least, detail, created_at)
values (:schedule, :first, :last, :count, :reason, :at_least, :detail, :now)
returning seq;

-- name: gap.extend
-- (last, count, at_least, seq): the newest gap goes on.
update {ns}_gaps set last = ?, count = count + ?, at_least = max(at_least, ?) where seq = ?;

-- name: gap.list
-- A schedule's gaps that touch a stretch of time, newest first.
select schedule, first, last, count, reason, at_least, detail, created_at
from {ns}_gaps
where schedule = :schedule
    and (:since is null or last >= :since)
    and (:until is null or first <= :until)
order by seq desc
limit :limit;

-- name: gap.prune
-- Gaps recorded before, unless they go on.
delete from {ns}_gaps
where seq in (select seq from {ns}_gaps where created_at < :before and last < :before limit :limit);

-- name: run.next_seq
-- Where the next inserted run stands in the listing.
select max(coalesce(max(seq), 0) + 1, :now) from {ns}_runs;

-- name: run.get
-- Runs by id, those that exist.
select {run} from json_each(:ids) j cross join {ns}_runs r on r.id = j.value;

-- name: run.open_of
-- The open runs of these schedules.
select {run} from json_each(:schedules) j
cross join {ns}_runs r on r.schedule = j.value
where r.ended_at is null;

-- name: run.serial_of
-- Those of them that take the schedule's place: a backfill may have left many that do not.
select {run} from json_each(:schedules) j
cross join {ns}_runs r on r.schedule = j.value
where r.ended_at is null and r.serial = 1;

-- name: run.holders
-- The open runs that have these unique keys.
select {run} from json_each(:keys) j
cross join {ns}_runs r on r.unique_key = j.value
where r.ended_at is null;

-- name: run.insert
-- (seq, columns of a run): a run that a call asked for.
insert into {ns}_runs (seq, {columns}) values (?, {marks});

-- name: run.update
-- (columns that may change, id): the run as it is now.
update {ns}_runs
set state = ?, due_at = ?, started_at = ?, ended_at = ?, attempt = ?, given_back = ?, releases = ?,
    retry_delay = ?, worker = ?, token = ?, outcome = ?, claim_id = ?, opening = ?, serial = ?, parked = ?,
    cancel_requested = ?, result = ?, error = ?, reason = ?, progress = ?, checkpoint = ?, log = ?
where id = ?;

-- name: claim.next_queue
-- The next queue, by name, in which anything waits.
select min(queue) from {ns}_runs
where state = 'pending' and parked = 0 and cancel_requested = 0 and queue > :queue;

-- name: claim.next_priority
-- The next higher priority for which anything waits in a queue.
select min(priority) from {ns}_runs
where state = 'pending' and parked = 0 and cancel_requested = 0 and queue = :queue and priority > :priority;

-- name: claim.due
-- (order_key, due_at, id, task) of what is due in one group, in its order, of the tasks given.
select due_at - 60000000 * priority, due_at, id, task
from {ns}_runs
where state = 'pending' and parked = 0 and cancel_requested = 0
    and queue = :queue and priority = :priority and due_at <= :now
    and task in (select value from json_each(:tasks))
order by due_at
limit :limit;

-- name: claim.next_due
-- When the first of a group's runs of these tasks is due.
select min(due_at)
from {ns}_runs
where state = 'pending' and parked = 0 and cancel_requested = 0
    and queue = :queue and priority = :priority
    and task in (select value from json_each(:tasks));

-- name: claim.running
-- How many claims are held of these tasks (G10, max_running).
select task, count(*) from {ns}_runs
where state = 'running' and task in (select value from json_each(:tasks))
group by task;

-- name: claim.running_in
-- How many claims are held in these queues (G10, queue_limits), from the index alone.
select queue, count(*) from {ns}_runs
where state = 'running' and queue in (select value from json_each(:queues))
group by queue;

-- name: claim.paused
-- Queues from which nobody takes.
select name from {ns}_queues where paused = 1;

-- name: claim.held
-- What a worker holds by one claim (G7).
select {run} from {ns}_runs r
where state = 'running' and worker = :worker and claim_id = :claim_id;

-- name: claim.lease
-- (now, worker, claim_id, token, id): the run is held (G4), under a new token (G5).
update {ns}_runs
set state = 'running', attempt = attempt + 1, started_at = coalesce(started_at, ?), worker = ?, claim_id = ?,
    token = ?, outcome = null
where id = ?;

-- name: worker.lease
-- Until when a worker's lease lasts, and whether the worker has left.
select lease_until, has_left from {ns}_workers where id = :worker;

-- name: worker.renew
-- A claim's part of the lease. Whoever had left begins anew.
insert into {ns}_workers (id, started_at, lease_until) values (:worker, :now, :until)
on conflict (id) do update set
    started_at = iif(has_left, excluded.started_at, started_at),
    lease_until = excluded.lease_until, has_left = 0;

-- name: worker.put
-- A heartbeat.
insert into {ns}_workers (id, host, pid, started_at, lease_until, release, tzdata, version, roles, declares,
                          tasks, queues, skew)
values (:id, :host, :pid, :started_at, :lease_until, :release, :tzdata, :version, :roles, :declares, :tasks, :queues,
        :skew)
on conflict (id) do update set
    host = excluded.host, pid = excluded.pid, started_at = excluded.started_at,
    lease_until = excluded.lease_until, release = excluded.release, tzdata = excluded.tzdata,
    version = excluded.version, roles = excluded.roles, declares = excluded.declares, tasks = excluded.tasks,
    queues = excluded.queues, skew = excluded.skew, has_left = 0;

-- name: worker.holds
-- (id, token, cancel_requested) of what a worker holds.
select id, token, cancel_requested from {ns}_runs where state = 'running' and worker = :worker;

-- name: worker.report
-- (progress, checkpoint, log, id, token, worker): what a running run says of itself, while the token is current.
update {ns}_runs set progress = coalesce(?, progress), checkpoint = coalesce(?, checkpoint), log = coalesce(?, log)
where id = ? and token = ? and worker = ? and state = 'running';

-- name: worker.leave
-- A worker that holds nothing left: its row goes.
delete from {ns}_workers
where id = :worker and has_left = 0
    and not exists (select 1 from {ns}_runs where state = 'running' and worker = :worker);

-- name: worker.hide
-- A worker left: out of sight, but its lease covers what it holds until it ends.
update {ns}_workers
set has_left = 1, host = '', pid = 0, release = null, tzdata = '', version = '', roles = '[]', tasks = '[]',
    queues = null
where id = :worker and has_left = 0;

-- name: worker.forget
-- Workers that left and hold nothing any more.
delete from {ns}_workers
where has_left = 1
    and not exists (select 1 from {ns}_runs where state = 'running' and worker = {ns}_workers.id);

-- name: worker.list
-- Workers by id.
select id, host, pid, started_at, lease_until, release, tzdata, version, roles, declares, tasks, queues, skew
from {ns}_workers where has_left = 0 order by id;

-- name: worker.live_until
-- The end of the longest lease.
select max(lease_until) from {ns}_workers;

-- name: worker.droppable
-- Workers without runs whose lease ended before.
select id from {ns}_workers
where has_left = 0 and lease_until < :before
    and not exists (select 1 from {ns}_runs where state = 'running' and worker = {ns}_workers.id)
order by id;

-- name: worker.drop
-- One of them.
delete from {ns}_workers where id = ?;

-- name: reap.holders
-- Workers that hold runs though their lease has ended, or that have none (G8). Jumps from worker to
-- worker in the index, whatever each of them holds.
with recursive holder (worker) as (
    select min(worker) from {ns}_runs where state = 'running'
    union all
    select (select min(worker) from {ns}_runs where state = 'running' and worker > holder.worker)
    from holder where holder.worker is not null
)
select h.worker from holder h
left join {ns}_workers w on w.id = h.worker
where h.worker is not null and (w.id is null or w.lease_until <= :now);

-- name: reap.runs
-- What these workers hold.
select {run} from json_each(:workers) j
cross join {ns}_runs r on r.worker = j.value
where r.state = 'running'
limit :limit;

-- name: run.prune
-- Ended runs of one state that ended before, but for those of batches on record.
delete from {ns}_runs
where seq in (
    select seq from {ns}_runs r
    where state = :state and ended_at < :before and ended_at is not null
        and (batch is null or not exists (select 1 from {ns}_batches b where b.id = r.batch))
    limit :limit
);

-- name: run.count_dead
-- Failed and lost runs, from the index alone.
select count(*) from {ns}_runs where state in ('failed', 'lost') and ended_at is not null;

-- name: run.prune_dead
-- Failed and lost runs but for the newest so many and those of batches on record.
delete from {ns}_runs
where seq in (
    select seq from (
        select seq, batch from {ns}_runs
        where state in ('failed', 'lost') and ended_at is not null
        order by created_at desc, id desc
        limit -1 offset :keep
    ) r
    where batch is null or not exists (select 1 from {ns}_batches b where b.id = r.batch)
    limit :limit
);

-- name: poll.next_tick
-- The earliest tick of any active schedule.
select min(next_at) from {ns}_cursors where next_at is not null;

-- name: run.mark
-- Where a page of the listing goes on after a run: its place in the order, and a seq that all
-- older runs lie below (the next one that was made at a later instant).
select r.created_at, r.id, coalesce(
    (select min(seq) from {ns}_runs where seq > r.seq and created_at > r.created_at), 9223372036854775807
)
from {ns}_runs r where r.id = :id;

-- name: run.list
-- Newest first, by (created_at, id). The order of seq finds the instant down to which a page
-- reaches; only runs since then are sorted.
with page as (
    select created_at from {ns}_runs
    where seq < :above and seq >= :since and created_at >= :since and (created_at, id) < (:before_at, :before_id)
        and (:task is null or task = :task) and (:state is null or state = :state)
        and (:queue is null or queue = :queue)
    order by seq desc
    limit :limit
)
select {run} from {ns}_runs r
where seq < :above and seq >= (select min(created_at) from page)
    and created_at >= (select min(created_at) from page) and (created_at, id) < (:before_at, :before_id)
    and (:task is null or task = :task) and (:state is null or state = :state)
    and (:queue is null or queue = :queue)
order by created_at desc, id desc
limit :limit;

-- name: run.list_open
-- The same for all open runs, from their own index: they are few among those that have ended.
select {run} from {ns}_runs r indexed by {ns}_runs_open
where ended_at is null and created_at >= :since and (created_at, id) < (:before_at, :before_id)
    and (:task is null or task = :task) and (:state is null or state = :state)
    and (:queue is null or queue = :queue)
order by created_at desc, id desc
limit :limit;

-- name: run.list_open_of
-- The same for the open runs of one schedule.
with page as (
    select created_at from {ns}_runs
    where schedule = :schedule and ended_at is null
        and seq < :above and seq >= :since and created_at >= :since and (created_at, id) < (:before_at, :before_id)
        and (:task is null or task = :task) and (:state is null or state = :state)
        and (:queue is null or queue = :queue)
    order by seq desc
    limit :limit
)
select {run} from {ns}_runs r
where schedule = :schedule and ended_at is null
    and seq < :above and seq >= (select min(created_at) from page)
    and created_at >= (select min(created_at) from page) and (created_at, id) < (:before_at, :before_id)
    and (:task is null or task = :task) and (:state is null or state = :state)
    and (:queue is null or queue = :queue)
order by created_at desc, id desc
limit :limit;

-- name: run.list_past_of
-- The same for the ended runs of one schedule.
with page as (
    select created_at from {ns}_runs
    where schedule = :schedule and ended_at is not null
        and seq < :above and seq >= :since and created_at >= :since and (created_at, id) < (:before_at, :before_id)
        and (:task is null or task = :task) and (:state is null or state = :state)
        and (:queue is null or queue = :queue)
    order by seq desc
    limit :limit
)
select {run} from {ns}_runs r
where schedule = :schedule and ended_at is not null
    and seq < :above and seq >= (select min(created_at) from page)
    and created_at >= (select min(created_at) from page) and (created_at, id) < (:before_at, :before_id)
    and (:task is null or task = :task) and (:state is null or state = :state)
    and (:queue is null or queue = :queue)
order by created_at desc, id desc
limit :limit;

-- name: run.list_of_batch
-- The same for the runs of one batch, all of which are looked at.
select {run} from {ns}_runs r
where batch = :batch and created_at >= :since and (created_at, id) < (:before_at, :before_id)
    and (:task is null or task = :task) and (:state is null or state = :state)
    and (:queue is null or queue = :queue) and (:schedule is null or schedule = :schedule)
order by created_at desc, id desc
limit :limit;

-- name: stats.schedules
-- Schedules by status.
select status, count(*) from {ns}_cursors group by status;

-- name: stats.ended
-- Ended runs by state, from the index alone.
select state, count(*) from {ns}_runs where ended_at is not null group by state;

-- name: stats.running
-- Held runs, from the index alone.
select count(*) from {ns}_runs where state = 'running';

-- name: stats.open
-- Open runs, from the index alone: those that are not held are pending.
select count(*) from {ns}_runs where ended_at is null;

-- name: stats.overdue
-- Active schedules whose tick is past.
select count(*) from {ns}_cursors where next_at < :before and status = 'active';
