local notes = require "notes"

return resource {
  "All notes, the latest first. Clients that subscribe are told when there is another.",
  uri = "notes://all", mime = "application/json",
  function() return json.array(try(notes:query "select id, text, at from notes where gone_at is null order by id desc limit 1000")) end,
}
