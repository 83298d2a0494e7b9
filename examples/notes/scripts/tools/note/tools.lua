local notes = require "notes"

return {
  add = tool {
    "Keep a note.",
    input = { text = t.string { "What to remember", min = 1, max = 10000 } },
    function(args)
      local _, id = try(notes:exec("insert into notes (text, at) values (?, ?)", { args.text, time.format() }))
      resource_updated "notes://all"
      return "kept as " .. id
    end,
  },

  find = tool {
    "Find notes by a word in them.",
    input = { word = t.string "Any part of the text" }, read_only = true,
    function(args)
      return json.array(try(notes:query("select id, text, at from notes where gone_at is null and instr(lower(text), lower(?)) order by id", { args.word })))
    end,
  },

  forget = tool {
    "Forget notes. For an hour they are only out of sight.",
    input = { ids = t.list(t.integer, { min = 1, max = 100 }) }, destructive = true,
    function(args)
      try(notes:transaction(function(tx)
        for _, id in ipairs(args.ids) do
          local changed, why = tx:exec("update notes set gone_at = ? where id = ? and gone_at is null", { time.format(), id })
          if not changed then return nil, why end
          if changed == 0 then return nil, "there is no note " .. id .. ": none is forgotten" end
        end
      end))
      resource_updated "notes://all"
      return #args.ids .. " forgotten"
    end,
  },
}
