-- Plays the conversations of spec/transcripts, each in every revision and over every transport of the transcript, and
-- checks each message of the gateway against the official schema of the revision.
local gateway = require "spec.helpers.gateway"
local transcript = require "spec.helpers.transcript"
local player = require "spec.helpers.player"
local official, why = require "spec.helpers.official"()

if not official then describe("holding messages against the official schemas", function() pending("is left out: " .. why) end) end

for _, name in ipairs(transcript.names()) do
  local it_is = transcript.read(name)

  describe("the conversation about " .. name, function()
    local g, version

    lazy_setup(function()
      g = gateway.start { scripts = it_is.scripts, config = it_is.config }
      version = g:status().version
    end)

    lazy_teardown(function() g:stop() end)

    for _, play in ipairs(transcript.plays(it_is)) do
      it(("goes as it is written in %s over %s"):format(play.revision, play.transport), function()
        local where = play.transport == "stdio" and { scripts = it_is.scripts, config = it_is.config } or g
        player.play(it_is, play.revision, play.transport, where, version, official)
        assert.has_nothing_left(g)
      end)
    end
  end)
end
