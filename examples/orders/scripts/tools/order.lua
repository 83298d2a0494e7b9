local shop = require "shop"

return tool {
  "Takes an order.", input = { item = t.string, count = t.integer { min = 1 } },
  function(args)
    return shop:transaction(function(tx)
      local changed = try(tx:exec("update stock set n = n - $2 where item = $1 and n >= $2", { args.item, args.count }))
      if changed == 0 then return nil, "not enough " .. args.item .. " is left" end
      return "order " .. try(tx:row("insert into orders (item, n) values ($1, $2) returning id", { args.item, args.count })).id
    end)
  end,
}
