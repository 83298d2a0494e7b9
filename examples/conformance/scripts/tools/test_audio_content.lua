--- Answers with a sound.
return function() return audio(require("samples").wav, "audio/wav") end
