/**
 * The notices that scripts publish to a member. An invalid notice throws. A notice of a kind that
 * this version does not know is ignored: machines of a later version may share the Redis.
 */

import { identityFromHex } from './keys.ts';
import type { MemberMessage } from './protocol.ts';
import { NOTICES } from './records.ts';
import { EPOCH, Line } from './reply.ts';

const IDENTITY = /^[0-9a-f]{32}$/;

/** @returns undefined: its kind is not known */
export function decodeMemberMessage(message: string): MemberMessage | undefined {
  const kind = message.split(' ', 1)[0] as MemberMessage['kind'];
  if (!Object.hasOwn(NOTICES, kind)) return undefined;
  const fields = new Line('publish', message);
  fields.requireCount(NOTICES[kind].count);
  if (kind === 'epoch') return { kind, epoch: fields.text(NOTICES.epoch.at.epoch, EPOCH) };
  const { at } = NOTICES[kind];
  const identity = identityFromHex(fields.text(at.identity, IDENTITY));
  const durationMs = fields.integer(at.durationMs, 1);
  if (kind !== 'report') return { kind, identity, durationMs };
  return { kind, identity, durationMs, report: fields.integer(NOTICES.report.at.number, 1) };
}
