-- `moonpool test -c examples/weather/moonpool.yaml` runs this without the service.
local place = "http://127.0.0.1:7380/forecast?city=Oslo&days=1"

describe("forecast", function()
  it("tells a line per day", function()
    local asked = fake.http { [place] = { json = { days = { { name = "today", sky = "snow", low = -9, high = -2 } } } } }
    assert.equal("today: snow, -9 to -2 degrees", call("forecast", { city = "Oslo" }).text)
    assert.equal("GET", asked[1].method)
  end)

  it("reports a city without weather", function()
    fake.http { [place] = 404 }
    assert.same({ nil, "no weather is known for Oslo" }, { call("forecast", { city = "Oslo" }) })
  end)

  it("says so of a service that is not there", function()
    fake.http { [place] = function() return nil, "connection refused" end }
    assert.same({ nil, "connection refused" }, { call("forecast", { city = "Oslo" }) })
  end)
end)
