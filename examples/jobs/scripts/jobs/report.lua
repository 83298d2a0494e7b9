return job {
  "Adds up the visits, and notifies subscribers if there were more.",
  every = 1 * seconds, timeout = 5 * seconds,
  function()
    local lines = {}
    for _, key in ipairs(store.list "visits:") do lines[#lines + 1] = ("%s: %d"):format(key:sub(8), store.get(key)) end
    local report = table.concat(lines, "\n")
    if report == store.get "report" then return end
    try(store.set("report", report))
    resource_updated "visits://report"
  end,
}
