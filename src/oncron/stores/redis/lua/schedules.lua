-- include: rows
--
-- schedules: rows by name, or a page of all after a name. Writes nothing.
--
-- args     names [name]; or after (name, '' is the beginning) and page
-- returns  [the last name looked at, or '' at the end, row (`read_row`), ...]

local names, last = args.names, ''
if not names then
    local from = args.after == '' and '-' or '(' .. args.after
    names = call('ZRANGEBYLEX', NS .. 'schedules', from, '+', 'LIMIT', 0, args.page)
    last = #names == args.page and names[#names] or ''
end
local answer = {last}
for _, name in ipairs(names) do
    local row = read_row(name)
    if row[1] then
        table.insert(answer, row)
    end
end
return answer
