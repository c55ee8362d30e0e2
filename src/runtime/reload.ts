/**
 * Reloads on SIGHUP, on the main thread: reads the policies, the certificates and the rules of the
 * rate limit service again. They are reloaded independently. An invalid file is logged as an error,
 * changes nothing, and does not keep the others from being reloaded.
 */

import type { Policies } from '../config/policy-source.ts';
import type { Log } from '../core/log.ts';
import type { PolicyAuditor } from '../registry/policy-auditor.ts';
import type { Acceptors } from './acceptors.ts';
import type { DecisionThreads } from './decision-threads.ts';
import type { Rls } from './rls.ts';
import type { TlsCertificate } from './tls.ts';

interface ReloaderParts {
  policies: Policies;
  tls: TlsCertificate | undefined;
  rls: Pick<Rls, 'reload'> | undefined;
  threads: Pick<DecisionThreads, 'publish'>;
  acceptors: Pick<Acceptors, 'renewTls'>;
  auditor: PolicyAuditor;
  log: Log;
}

export class Reloader {
  readonly #parts: ReloaderParts;

  constructor(parts: ReloaderParts) {
    this.#parts = parts;
  }

  async run(): Promise<void> {
    const { policies, tls, rls, log } = this.#parts;
    if (policies.path === undefined && tls === undefined && rls === undefined) {
      log.info('SIGHUP: there is nothing to reload');
      return;
    }
    await this.#reloadPolicies();
    await this.#reloadCertificate();
    await rls?.reload(log);
  }

  async #reloadPolicies(): Promise<void> {
    const { policies, threads, auditor, log } = this.#parts;
    const { path } = policies;
    if (path === undefined) return;
    const before = policies.all;
    try {
      const changedSettings = await policies.reload((reloaded) => {
        return threads.publish({ policies: reloaded });
      });
      await auditor.recordChanges(policies.all);
      const after = new Set(policies.all.map(({ namespace }) => namespace));
      log.info({ config: path, policies: after.size }, 'SIGHUP: the policies were reloaded');
      const removed = before.map(({ namespace }) => namespace).filter((name) => !after.has(name));
      if (removed.length > 0) {
        log.warn(
          { namespaces: removed },
          'SIGHUP: the policies of these namespaces were removed; their gateway checks get a 404',
        );
      }
      for (const warning of policies.warnings) log.warn(`SIGHUP: ${warning}`);
      if (changedSettings.length === 0) return;
      log.warn(
        { settings: changedSettings },
        'SIGHUP: these settings have changed, and take effect at the next start',
      );
    } catch (error) {
      log.error(`SIGHUP: the policies were not reloaded: ${(error as Error).message}`);
    }
  }

  async #reloadCertificate(): Promise<void> {
    const { tls, acceptors, log } = this.#parts;
    if (tls === undefined) return;
    try {
      const isNew = await tls.reload((unchanged) => acceptors.renewTls(unchanged));
      const result = isNew ? 'the certificate was reloaded' : 'the certificate has not changed';
      log.info({ cert: tls.files.cert, expires: tls.expires }, `SIGHUP: ${result}`);
    } catch (error) {
      log.error(`SIGHUP: the certificate was not reloaded: ${(error as Error).message}`);
    }
  }
}
