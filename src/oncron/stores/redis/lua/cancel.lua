-- include: places
--
-- cancel: a pending run ends here and now, a running one is asked to stop (G6).
--
-- args     run_id, opening
-- returns  [the run's record], or [] if there is none

local run = load(args.run_id)
if not run then
    return {}
end
if is_open(run) and (not args.opening or args.opening == run.opening) then
    run.cancel_requested = true
    if run.state == 'pending' then
        finish_run(run, 'cancelled')
    else
        save(run)
    end
    settle()
end
return {cmsgpack.pack(run)}
