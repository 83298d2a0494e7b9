local notes = require "notes"

return job {
  "Deletes notes that were marked as forgotten an hour ago.",
  every = 10 * minutes,
  function() try(notes:exec("delete from notes where gone_at < ?", { time.format(time.now() - 1 * hours) })) end,
}
