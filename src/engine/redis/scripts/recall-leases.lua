-- Recalls the leases of other machines, and requests reports from those that must report. Returns
-- the known usage, which a write-off raises, and whether a lease was recalled. A lease is written
-- off if its machine does not answer, or nobody listens on its channel. A report is given up after
-- AWAIT_US, or, where a recovery is exact, when the member is forgotten.
--#include publish.lua
--#include counter-name.lua
local function recallLeases(ofKey, ofWindow, number, ofUsage, writeOffUs)
  local isSent = false
  local fields = call('HGETALL', ofKey)
  for k = 1, #fields, 2 do
    local member = fields[k]
    if #member > 1 and member ~= me then
      local otherDeducted, otherUsage, otherSequence, otherBase, otherRate, otherFlags,
        otherFirstRequestUs, otherLastRequestUs = unpack(ACCOUNT, fields[k + 1])
      local sinceFirstUs = clockUs - otherFirstRequestUs
      local sinceLastUs = clockUs - otherLastRequestUs
      local isChanged = true
      if otherFlags % (2 * ACCOUNT_MUST_REPORT) >= ACCOUNT_MUST_REPORT
          and ofWindow == currentWindow then
        if otherLastRequestUs > 0 and sinceFirstUs >= AWAIT_US
            and (isAvailable or otherFlags >= ACCOUNT_IS_GUESS
              or not call('HGET', bucketKey, BUCKET_MEMBER .. member)) then
          otherFlags = otherFlags % ACCOUNT_MUST_REPORT + ACCOUNT_MISSED_REPORT
          otherFirstRequestUs, otherLastRequestUs = 0, 0
          awaited, isMissing = awaited - 1, true
        elseif sinceLastUs >= (sinceFirstUs < AWAIT_US and RECALL_AGAIN_US or REPORT_AGAIN_US) then
          if otherLastRequestUs == 0 then otherFirstRequestUs = clockUs end
          publish(member,
            format(NOTICE_REPORT, identity, durationMs, ofWindow, otherFirstRequestUs))
          otherLastRequestUs = clockUs
        else isChanged = false end
      elseif otherDeducted > otherUsage and otherFlags % (2 * ACCOUNT_WRITTEN_OFF) == 0 then
        local isOverdue = otherFirstRequestUs > 0 and sinceFirstUs >= writeOffUs
        if not isOverdue and sinceLastUs >= RECALL_AGAIN_US then
          local receivers =
            publish(member, format(NOTICE_RECALL, identity, durationMs, ofWindow, number))
          isOverdue = receivers == 0 and not isCluster
          isSent = true
          if otherFirstRequestUs == 0 then otherFirstRequestUs = clockUs end
          otherLastRequestUs = clockUs
        end
        if isOverdue then
          ofUsage = ofUsage + (otherDeducted - otherUsage)
          otherFlags = otherFlags + ACCOUNT_WRITTEN_OFF
          writtenOff = writtenOff + 1
        end
      else isChanged = false end
      if isChanged then
        call('HSET', ofKey, member, pack(ACCOUNT, otherDeducted, otherUsage, otherSequence,
          otherBase, otherRate, otherFlags, otherFirstRequestUs, otherLastRequestUs))
      end
    end
  end
  return ofUsage, isSent
end
