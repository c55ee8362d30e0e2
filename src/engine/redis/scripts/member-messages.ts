/** What scripts publish to a member. An invalid message throws. */

import { identityFromHex } from './keys.ts';
import type { MemberMessage } from './protocol.ts';
import { EPOCH, Line } from './reply.ts';

const KIND = /^(?:recall|wake|reset|report|bucket|epoch)$/;
const IDENTITY = /^[0-9a-f]{32}$/;

export function decodeMemberMessage(message: string): MemberMessage {
  const fields = new Line('publish', message);
  const decoded = decodeFields(fields.text(KIND) as MemberMessage['kind'], fields);
  fields.end();
  return decoded;
}

function decodeFields(kind: MemberMessage['kind'], fields: Line): MemberMessage {
  if (kind === 'epoch') return { kind, epoch: fields.text(EPOCH) };
  const identity = identityFromHex(fields.text(IDENTITY));
  const durationMs = fields.integer(1);
  if (kind === 'bucket') return { kind, identity, durationMs };
  const counter = { identity, durationMs, window: fields.integer(0) };
  switch (kind) {
    case 'recall':
      return { kind, ...counter, recall: fields.integer(1) };
    case 'report':
      return { kind, ...counter, report: fields.integer(1) };
    default:
      return { kind, ...counter };
  }
}
