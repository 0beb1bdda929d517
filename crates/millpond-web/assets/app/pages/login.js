// The way in: a one-time code in the address, or a token. A kubeconfig is never uploaded.

import { html, useState } from '../core/html.js';
import { ended, login } from '../core/session.js';
import { Command } from '../parts/copy.js';
import { Note } from '../parts/notices.js';
import { Mark } from '../frame.js';

export function Login() {
  const [proof, setProof] = useState('');
  const [problem, setProblem] = useState('');
  const [isBusy, setBusy] = useState(false);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const text = proof.trim();
    if (!text) return;
    setBusy(true);
    setProblem('');
    // A token of Kubernetes has two dots; a code has none. A pasted address ends in its code.
    const code = /#code=([\w-]+)$/.exec(text)?.[1] ?? (text.includes('.') ? '' : text);
    try {
      await login(code ? { code } : { token: text });
    } catch (refused) {
      setProblem(refused.message);
    } finally {
      setBusy(false);
      setProof('');
    }
  };
  return html`<main class="login" id="main">
    <h1><${Mark} />Millpond</h1>
    ${ended.value && html`<${Note} kind="warning">${ended.value}<//>`}
    <p>Open this page with your kubeconfig: the command prints an address with a code that works once.</p>
    <${Command} text="millpond dashboard" />
    <form onSubmit=${submit}>
      <label for="proof">Or paste a code or a token</label>
      <div class="line"><input id="proof" type="password" autocomplete="off" spellcheck=${false} value=${proof}
        aria-describedby="proof-help"
        onInput=${(/** @type {any} */ event) => setProof(event.target.value)} />
      <button class="primary" disabled=${isBusy || !proof.trim()}>Log in</button></div>
      <p class="hint" id="proof-help">In a cluster: <code>kubectl create token NAME</code>. You see and do what that account may.</p>
    </form>
    ${problem && html`<${Note} kind="error">${problem}<//>`}
  </main>`;
}
