// Sets the theme before the first paint, so that a dark page does not flash white.
// A classic script in the head: modules run too late for that.
(function () {
  var chosen = null;
  try {
    chosen = localStorage.getItem('millpond.theme');
  } catch (refused) {
    // Storage is switched off: the system's theme is used.
  }
  if (chosen === 'light' || chosen === 'dark') {
    document.documentElement.dataset.theme = chosen;
  }
})();

// A module that could not be loaded leaves nothing on the page: a network that has just changed gets three more tries.
addEventListener('error', function (event) {
  var tries = (history.state && history.state.tries) || 0;
  if (!(event.target instanceof HTMLScriptElement) || tries >= 3) return;
  history.replaceState({ tries: tries + 1 }, '');
  setTimeout(function () {
    location.reload();
  }, 1000);
}, true);
