-- Plays the conversations of spec/transcripts, each in every revision and over every transport of the transcript, and
-- checks each message of the gateway against the official schema of the revision.
-- spec/gateway/cluster/transcripts_spec.lua plays them before several nodes.
local cluster = require "spec.helpers.cluster"
local transcript = require "spec.helpers.transcript"
local player = require "spec.helpers.player"
local official, why = require "spec.helpers.official"()

if not official then describe("holding messages against the official schemas", function() pending("is left out: " .. why) end) end

-- What is of one node, so that other nodes are no place for it: not played before several.
local OF_ONE_NODE <const> = {
  listen = "what a script enables and disables holds on its node alone",
}

for _, name in ipairs(transcript.names()) do
  local it_is = transcript.read(name)
  local describe = cluster.in_front() and OF_ONE_NODE[name] and function() end or describe

  describe("the conversation about " .. name, function()
    local g, version

    lazy_setup(function()
      g = cluster.front { scripts = it_is.scripts, config = it_is.config }
      version = g:status().version
    end)

    lazy_teardown(function() g:stop() end)

    for _, play in ipairs(transcript.plays(it_is)) do
      local it = cluster.in_front() and play.transport == "stdio" and function() end or it
      it(("goes as it is written in %s over %s"):format(play.revision, play.transport), function()
        local where = play.transport == "stdio" and { scripts = it_is.scripts, config = it_is.config } or g
        player.play(it_is, play.revision, play.transport, where, version, official)
        assert.has_nothing_left(g)
      end)
    end
  end)
end
