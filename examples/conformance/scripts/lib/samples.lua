-- The smallest valid files of several media types.

local samples = {}

-- One red pixel.
samples.png = (
  "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de" ..
  "0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
):gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end)

-- Eight samples of silence: mono, 8 bits, 8 kHz.
local silence = ("\128"):rep(8)
samples.wav = string.pack("<c4I4c4 c4I4I2I2I4I4I2I2 c4s4", "RIFF", 36 + #silence, "WAVE",
  "fmt ", 16, 1, 1, 8000, 8000, 1, 8, "data", silence)

return samples
