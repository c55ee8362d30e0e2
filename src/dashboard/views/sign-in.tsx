/**
 * The form that signs in with an API key. The key is sent once, and not kept. A user whom a proxy
 * has signed in sees it only after a session has ended, without the field.
 */

import { useState } from 'preact/hooks';
import type { SessionInfo, SessionState } from '../../observe/dashboard/snapshot.ts';
import { ErrorNote, Field, Note, useAction } from '../common/controls.tsx';
import { Copy } from '../common/copy.tsx';
import { signIn } from '../common/operations.ts';
import { Name } from '../common/text.tsx';
import { ThemeSwitch } from '../common/theme.tsx';

interface SignInProps {
  state: SessionState;
  /** Why the session before is over; '' without one. */
  reason: string;
  onSignedIn: (session: SessionInfo) => void;
}

export function SignIn({ state: { user, keysUrl }, reason, onSignedIn }: SignInProps) {
  const [key, setKey] = useState('');
  const signing = useAction(async () => {
    onSignedIn(await signIn(user === undefined ? key.trim() : undefined));
  });
  return (
    <main class="sign-in">
      <h1>weir</h1>
      {user === undefined ? (
        <p>Sign in with an API key. The dashboard shows what the key permits.</p>
      ) : (
        <p>
          The proxy in front of weir has signed you in as <Name text={user} />. To sign out there,
          use the proxy.
        </p>
      )}
      {reason !== '' && signing.error === undefined && (
        <Note kind="info">You are signed out: {reason}.</Note>
      )}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void signing.run();
        }}
      >
        {user === undefined && (
          <Field
            label="API key"
            type="password"
            name="key"
            required
            value={key}
            onInput={({ currentTarget }) => setKey(currentTarget.value)}
          />
        )}
        <ErrorNote error={signing.error} />
        <div class="buttons">
          <button type="submit" class="primary" disabled={signing.isRunning}>
            Sign in
          </button>
        </div>
      </form>
      {user === undefined && <KeyHelp keysUrl={keysUrl} />}
      <ThemeSwitch />
    </main>
  );
}

function Command({ text }: { text: string }) {
  return (
    <div class="command">
      <pre>{text}</pre>
      <Copy text={text} />
    </div>
  );
}

/** Where a key comes from. */
function KeyHelp({ keysUrl }: { keysUrl: string | undefined }) {
  return (
    <details>
      <summary>Where do I get a key?</summary>
      <p>
        The first start of weir prints a key on its standard output, unless one is configured. With
        that key in <code>WEIR_KEY</code>, this command creates another:
      </p>
      <Command text="weir keys create --name me --role viewer" />
      <p>If every key is lost, stop weir, and create one in its data directory:</p>
      <Command text="weir keys create --name me --role admin --offline" />
      {keysUrl !== undefined && (
        <p>
          <a href={keysUrl}>Keys and permissions</a>
        </p>
      )}
    </details>
  );
}
