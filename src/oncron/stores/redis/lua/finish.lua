-- include: enqueueing
--
-- finish: ends claims, by token (G5, G6).
--
-- args     outcomes [Outcome]
-- returns  {now, results [FinishResult]}

local MOST_RELEASES = 10

local function effective_kind(run, outcome)
    local kind = outcome.kind
    if kind ~= 'retry' and kind ~= 'released' then
        return kind
    end
    if run.cancel_requested then
        return 'cancelled'
    end
    local spent = run.attempt - run.given_back
    if kind == 'released' and run.releases >= MOST_RELEASES and spent > run.retries then
        return 'lost'
    end
    return kind
end

-- Pending again, and still the head of its schedule.
local function put_back(run, outcome, kind)
    local released = kind == 'released'
    local spends = outcome.spend_attempt
    if released then
        spends = run.releases >= MOST_RELEASES
    end
    if not spends then
        run.given_back = run.given_back + 1
    end
    run.state, run.outcome, run.worker = 'pending', kind, nil
    run.due_at, run.retry_delay = now + outcome.delay, outcome.retry_delay
    run.releases = released and run.releases + 1 or 0
    save(run)
    return {run_id = run.id, status = 'recorded', state = 'pending', due_at = run.due_at}
end

local function end_for_good(run, outcome, kind)
    run.outcome, run.result = kind, outcome.result
    local _, next_run = finish_run(run, kind)
    if kind == 'succeeded' then
        for _, new in ipairs(outcome.enqueue) do
            if may_write(new) then
                enqueue_one(new)
            end
        end
    end
    if outcome['then'] and may_write(outcome['then']) then
        enqueue_one(outcome['then'])
    end
    local freed = next_run ~= nil and next_run.state == 'pending' and next_run.due_at <= now
    return {run_id = run.id, status = 'recorded', state = kind, freed = freed}
end

-- What the recorded outcome of the newest claim made of the run, whatever came later.
local function first_answer(run)
    local again = run.outcome == 'retry' or run.outcome == 'released'
    return {
        run_id = run.id, status = 'repeated', state = again and 'pending' or run.outcome,
        due_at = again and run.due_at or nil,
    }
end

local function finish_one(outcome)
    local run = load(outcome.run_id)
    if not run then
        return {run_id = outcome.run_id, status = 'lease_lost', state = 'lost'}
    end
    local is_newest = int(run.token) == outcome.token
    if is_newest and run.outcome and run.outcome ~= 'reaped' then
        return first_answer(run)
    end
    if not is_newest or run.state ~= 'running' then
        return {run_id = run.id, status = 'lease_lost', state = run.state}
    end
    local kind = effective_kind(run, outcome)
    run.error, run.reason = outcome.error, outcome.reason
    run.progress, run.checkpoint = outcome.progress or run.progress, outcome.checkpoint or run.checkpoint
    run.log = outcome.log or run.log
    if kind == 'retry' or kind == 'released' then
        return put_back(run, outcome, kind)
    end
    return end_for_good(run, outcome, kind)
end

local results = {}
for _, outcome in ipairs(args.outcomes) do
    table.insert(results, finish_one(outcome))
end
settle()
return {cmsgpack.pack({now = now, results = results})}
