-- The header of an answer, as `header`, from `status`. Its last part is rarely needed.
local header = format(ANSWER_HEADER, status, clockUs, runId, epochNumber, fenceUs > 0 and 1 or 0,
  membersVersion, machineCount)
if openedUs > 0 or clockUs > timeUs then
  header = header .. ' ' .. format(ANSWER_HEADER_END, openedUs, max(0, clockUs - timeUs))
end
