/**
 * `weir config check`: checks a configuration file and the environment as a start does, and starts
 * nothing: no port is opened, no directory made or locked. Every fault is printed, in the words of
 * a start, one per line.
 */

import { type LoadedSettings, loadSettings } from '../config/load.ts';
import { attempt, FileError } from '../config/setting-value.ts';
import type { StartError } from '../core/errors.ts';
import { EXIT } from '../core/exit.ts';
import { printError } from '../core/fatal.ts';
import { TlsCertificate } from '../runtime/tls.ts';
import { UnixSocket } from '../runtime/unix-socket.ts';
import { type Command, subcommand } from './command.ts';

interface ConfigCheckResult {
  ok: boolean;
  /** Undefined where none was named. */
  file: string | undefined;
  policies: number;
  /** Those in the file. */
  settings: number;
  faults: { message: string; line?: number; column?: number }[];
}

const check = subcommand({
  usage: '[<file>]',
  argumentNames: ['file'],
  isLastArgumentOptional: true,
  needsServer: false,
  run: async (call) => {
    const findings = checkConfiguration(call.positionals[0]);
    if (findings.ok || call.isJson) call.print(findings, () => describeResult(findings));
    else for (const { message } of findings.faults) printError(message);
    return findings.ok ? EXIT.OK : EXIT.USAGE;
  },
});

function checkConfiguration(file: string | undefined): ConfigCheckResult {
  const faults = new Map<string, ConfigCheckResult['faults'][number]>();
  const onFault = (fault: StartError) => {
    const place = fault instanceof FileError ? fault.position : {};
    faults.set(fault.message, { message: fault.message, ...place });
  };
  const args = file === undefined ? [] : [`--config=${file}`];
  const loaded = loadSettings(args, process.env, undefined, onFault) as LoadedSettings;
  attempt(onFault, () => TlsCertificate.open(loaded));
  for (const [setting, path] of [
    ['WEIR_SOCKET', loaded.socket],
    ['WEIR_GATEWAY_SOCKET', loaded.gatewaySocket],
  ] as const) {
    if (path !== undefined) attempt(onFault, () => UnixSocket.requireShortPath(setting, path));
  }
  return {
    ok: faults.size === 0,
    file: loaded.file?.path ?? file ?? process.env.WEIR_CONFIG,
    policies: loaded.file?.policies.length ?? 0,
    settings: loaded.file?.settings.size ?? 0,
    faults: [...faults.values()],
  };
}

function describeResult({ file, policies, settings }: ConfigCheckResult): string {
  if (file === undefined) return 'the environment is in order; no configuration file is named';
  const held = [
    formatCount(policies, 'policy', 'policies'),
    formatCount(settings, 'setting', 'settings'),
  ];
  return `${file} and the environment are in order: ${held.join(', ')}`;
}

function formatCount(number: number, one: string, many: string): string {
  return `${number} ${number === 1 ? one : many}`;
}

export const config: Command = {
  subcommands: { check },
  notes: `
check reads the file, else the one that WEIR_CONFIG names, and the environment. It prints everything
that weir serve would refuse there, opens no port and touches no data directory.
`,
  examples: ['weir config check weir.json', 'weir config check weir.json --json'],
  exitCodes: [EXIT.OK, EXIT.USAGE],
};
