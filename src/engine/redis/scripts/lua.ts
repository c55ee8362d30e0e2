/**
 * Puts the scripts of members together. A script that includes a file which is not here stops the
 * process at its start.
 */

import { composeLua, defineScript, type Script } from '../../../redis/script.ts';
import addToIndex from './add-to-index.lua';
import answerHeader from './answer-header.lua';
import beginExpiry from './begin-expiry.lua';
import bounded from './bounded.lua';
import clock from './clock.lua';
import counterName from './counter-name.lua';
import endDenials from './end-denials.lua';
import enter from './enter.lua';
import gcraBucket from './gcra-bucket.lua';
import membership from './membership.lua';
import publish from './publish.lua';
import quotient from './quotient.lua';
import { luaConstants } from './records.ts';
import storeMeta from './store-meta.lua';
import wakeWaiting from './wake-waiting.lua';

/** Those that several scripts include. */
const FILES = {
  'add-to-index.lua': addToIndex,
  'answer-header.lua': answerHeader,
  'begin-expiry.lua': beginExpiry,
  'bounded.lua': bounded,
  'clock.lua': clock,
  'counter-name.lua': counterName,
  'end-denials.lua': endDenials,
  'enter.lua': enter,
  'gcra-bucket.lua': gcraBucket,
  'membership.lua': membership,
  'publish.lua': publish,
  'quotient.lua': quotient,
  'store-meta.lua': storeMeta,
  'wake-waiting.lua': wakeWaiting,
};

const CONSTANTS = luaConstants();

interface MemberScriptOptions {
  /** Others that it includes. */
  files?: Readonly<Record<string, string>>;
  readsOnly?: boolean;
  /** Whether it runs at `maxmemory`. */
  allowsOom?: boolean;
  /** CREATES of a script that may leave the creation of keys to another. */
  creates?: boolean;
}

/** @param text a Lua file */
export function memberScript(
  name: string,
  text: string,
  options: MemberScriptOptions = {},
): Script {
  const { files = {}, creates, ...flags } = options;
  const constants = creates === undefined ? CONSTANTS : { ...CONSTANTS, CREATES: creates };
  const composed = composeLua(text, { ...FILES, ...files }, constants, flags);
  return defineScript(name, composed, flags);
}
