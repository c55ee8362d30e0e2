/**
 * `weir config check`: validates a configuration file and the environment like a start, but opens
 * no port and neither creates nor locks a directory. It prints every error and warning, one per
 * line, with the same text as a start.
 */

import { type LoadedSettings, loadSettings } from '../config/load.ts';
import { findPolicyWarnings } from '../config/policy-source.ts';
import { attempt, FileError } from '../config/setting-value.ts';
import type { StartError } from '../core/errors.ts';
import { EXIT } from '../core/exit.ts';
import { printError } from '../core/fatal.ts';
import { TlsCertificate } from '../runtime/tls.ts';
import { UnixSocket } from '../runtime/unix-socket.ts';
import { type Command, subcommand } from './command.ts';
import { formatCount } from './output.ts';

interface ConfigCheckResult {
  ok: boolean;
  /** Undefined if neither the command line nor WEIR_CONFIG names a file. */
  file: string | undefined;
  policies: number;
  /** Settings in the file. */
  settings: number;
  faults: Finding[];
  /** They do not stop a start. */
  warnings: Finding[];
}

interface Finding {
  message: string;
  line?: number;
  column?: number;
}

const check = subcommand({
  usage: '[<file>]',
  argumentNames: ['file'],
  isLastArgumentOptional: true,
  needsServer: false,
  run: async (call) => {
    const result = checkConfiguration(call.positionals[0]);
    if (!call.isJson) {
      for (const { message } of result.faults) printError(message);
      for (const { message } of result.warnings) printError(`warning: ${message}`);
    }
    if (result.ok || call.isJson) call.print(result, () => describeResult(result));
    return result.ok ? EXIT.OK : EXIT.USAGE;
  },
});

function checkConfiguration(file: string | undefined): ConfigCheckResult {
  const faults = new Map<string, Finding>();
  const onFault = (fault: StartError) => {
    faults.set(fault.message, toFinding(fault));
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
    warnings: findPolicyWarnings(loaded.file, loaded).map(toFinding),
  };
}

function toFinding(fault: StartError): Finding {
  const position = fault instanceof FileError ? fault.position : {};
  return { message: fault.message, ...position };
}

function describeResult({ file, policies, settings }: ConfigCheckResult): string {
  if (file === undefined) return 'the environment is valid; no configuration file is named';
  const counts = [formatCount(policies, 'policy', 'policies'), formatCount(settings, 'setting')];
  return `${file} and the environment are valid: ${counts.join(', ')}`;
}

export const config: Command = {
  subcommands: { check },
  notes: `
check reads <file>, or the file that WEIR_CONFIG names, and the environment. It prints every error
that would stop weir serve, and warnings, which do not change the exit code. It opens no port and
does not touch the data directory.
`,
  examples: ['weir config check weir.json', 'weir config check weir.json --json'],
  exitCodes: [EXIT.OK, EXIT.USAGE],
};
