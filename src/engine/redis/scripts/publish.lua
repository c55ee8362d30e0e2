local function publish(member, message)
  local channel = bucketKey:sub(1, -2) .. CHANNEL_KEY .. member
  return call(isCluster and 'SPUBLISH' or 'PUBLISH', channel, message)
end
