/**
 * Reloads on SIGHUP, on the main thread: reads the policies and the certificate again. They are
 * reloaded independently. An invalid file is logged as an error, changes nothing, and does not keep
 * the other from being reloaded.
 */

import type { Policies } from '../config/policy-source.ts';
import type { Log } from '../core/log.ts';
import type { PolicyAuditor } from '../registry/policy-auditor.ts';
import type { Acceptors } from './acceptors.ts';
import type { TlsCertificate } from './tls.ts';

export class Reloader {
  readonly #policies: Policies;
  readonly #tls: TlsCertificate | undefined;
  readonly #acceptors: Acceptors;
  readonly #auditor: PolicyAuditor;
  readonly #log: Log;

  constructor(
    policies: Policies,
    tls: TlsCertificate | undefined,
    acceptors: Acceptors,
    auditor: PolicyAuditor,
    log: Log,
  ) {
    this.#policies = policies;
    this.#tls = tls;
    this.#acceptors = acceptors;
    this.#auditor = auditor;
    this.#log = log;
  }

  async run(): Promise<void> {
    if (this.#policies.path === undefined && this.#tls === undefined) {
      this.#log.info('SIGHUP: there is nothing to reload');
      return;
    }
    await this.#reloadPolicies();
    await this.#reloadCertificate();
  }

  async #reloadPolicies(): Promise<void> {
    const { path } = this.#policies;
    if (path === undefined) return;
    const before = this.#policies.all;
    try {
      const changedSettings = await this.#policies.reload((policies) => {
        return this.#acceptors.publish({ policies });
      });
      await this.#auditor.recordChanges(this.#policies.all);
      const after = new Set(this.#policies.all.map(({ namespace }) => namespace));
      this.#log.info({ config: path, policies: after.size }, 'SIGHUP: the policies were reloaded');
      const removed = before.map(({ namespace }) => namespace).filter((name) => !after.has(name));
      if (removed.length > 0) {
        this.#log.warn(
          { namespaces: removed },
          'SIGHUP: the policies of these namespaces were removed; their gateway checks get a 404',
        );
      }
      for (const warning of this.#policies.warnings) this.#log.warn(`SIGHUP: ${warning}`);
      if (changedSettings.length === 0) return;
      this.#log.warn(
        { settings: changedSettings },
        'SIGHUP: these settings have changed, and take effect at the next start',
      );
    } catch (error) {
      this.#log.error(`SIGHUP: the policies were not reloaded: ${(error as Error).message}`);
    }
  }

  async #reloadCertificate(): Promise<void> {
    const tls = this.#tls;
    if (tls === undefined) return;
    try {
      const isNew = await tls.reload((unchanged) => this.#acceptors.renewTls(unchanged));
      const result = isNew ? 'the certificate was reloaded' : 'the certificate has not changed';
      this.#log.info({ cert: tls.files.cert, expires: tls.expires }, `SIGHUP: ${result}`);
    } catch (error) {
      this.#log.error(`SIGHUP: the certificate was not reloaded: ${(error as Error).message}`);
    }
  }
}
