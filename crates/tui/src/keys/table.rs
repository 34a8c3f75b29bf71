//! Every action: its name in files, where it holds, its keys, and what help says of it.

use super::{ActionInfo, Scope};

macro_rules! actions {
    ($($scope:ident { $($action:ident $id:literal [$($key:literal),*] $help:literal;)* })*) => {
        /// What a key can do. The names in files and the default keys are in [`ACTIONS`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Action { $($(#[doc = $help] $action,)*)* }

        /// Every action, in the order in which help shows them.
        pub const ACTIONS: &[ActionInfo] = &[$($(ActionInfo {
            action: Action::$action,
            id: $id,
            scope: Scope::$scope,
            keys: &[$($key),*],
            help: $help,
        },)*)*];
    };
}

actions! {
    Editor {
        Submit "tui.input.submit" ["enter"] "Send what is written; while it works, steer";
        NewLine "tui.input.newLine" ["shift+enter", "ctrl+j"] "Begin a new line; so does Enter behind a backslash";
        Complete "tui.input.tab" ["tab"] "Complete a path, a file or a command";
        CursorUp "tui.editor.cursorUp" ["up"] "A row up; in the first row, what was sent before";
        CursorDown "tui.editor.cursorDown" ["down"] "A row down; in the last row, what was sent after";
        CursorLeft "tui.editor.cursorLeft" ["left", "ctrl+b"] "A character to the left";
        CursorRight "tui.editor.cursorRight" ["right", "ctrl+f"] "A character to the right";
        CursorWordLeft "tui.editor.cursorWordLeft" ["alt+left", "ctrl+left", "alt+b"] "A word to the left";
        CursorWordRight "tui.editor.cursorWordRight" ["alt+right", "ctrl+right", "alt+f"] "A word to the right";
        CursorLineStart "tui.editor.cursorLineStart" ["home", "ctrl+a"] "To the beginning of the line";
        CursorLineEnd "tui.editor.cursorLineEnd" ["end", "ctrl+e"] "To the end of the line";
        CursorTextStart "tui.editor.cursorTextStart" ["ctrl+home", "alt+<"] "To the beginning of the text";
        CursorTextEnd "tui.editor.cursorTextEnd" ["ctrl+end", "alt+>"] "To the end of the text";
        PageUp "tui.editor.pageUp" ["pageUp"] "A page up";
        PageDown "tui.editor.pageDown" ["pageDown"] "A page down";
        JumpForward "tui.editor.jumpForward" ["ctrl+]"] "To the next one of the character typed then";
        JumpBackward "tui.editor.jumpBackward" ["ctrl+alt+]"] "To the one before of the character typed then";
        HistoryPrevious "tui.editor.historyPrevious" ["alt+p"] "What was sent before";
        HistoryNext "tui.editor.historyNext" ["alt+n"] "What was sent after";
        DeleteCharBackward "tui.editor.deleteCharBackward" ["backspace", "shift+backspace", "ctrl+h"] "Remove the character before";
        DeleteCharForward "tui.editor.deleteCharForward" ["delete", "ctrl+d"] "Remove the character behind";
        DeleteWordBackward "tui.editor.deleteWordBackward" ["ctrl+w", "alt+backspace", "ctrl+backspace"] "Cut the word before";
        DeleteWordForward "tui.editor.deleteWordForward" ["alt+d", "alt+delete", "ctrl+delete"] "Cut the word behind";
        DeleteToLineStart "tui.editor.deleteToLineStart" ["ctrl+u"] "Cut to the beginning of the line";
        DeleteToLineEnd "tui.editor.deleteToLineEnd" ["ctrl+k"] "Cut to the end of the line";
        Yank "tui.editor.yank" ["ctrl+y"] "Put what was cut last";
        YankPop "tui.editor.yankPop" ["alt+y"] "Put what was cut before that instead";
        CopyText "tui.editor.copy" ["alt+w"] "Copy what is marked, or else all, to the clipboard";
        Undo "tui.editor.undo" ["ctrl+-", "ctrl+_"] "Take the last edit back";
        Redo "tui.editor.redo" ["alt+-", "alt+_"] "Do it again";
    }
    Select {
        SelectUp "tui.select.up" ["up", "ctrl+p"] "The row above";
        SelectDown "tui.select.down" ["down", "ctrl+n"] "The row below";
        SelectPageUp "tui.select.pageUp" ["pageUp"] "A page up";
        SelectPageDown "tui.select.pageDown" ["pageDown"] "A page down";
        SelectFirst "tui.select.first" ["home"] "The first row";
        SelectLast "tui.select.last" ["end"] "The last row";
        SelectConfirm "tui.select.confirm" ["enter"] "Take it";
        SelectCancel "tui.select.cancel" ["escape", "ctrl+c"] "Take none";
    }
    App {
        Interrupt "app.interrupt" ["escape"] "Stop what is under way; when nothing is, twice: the tree";
        Clear "app.clear" ["ctrl+c"] "Empty the editor; again: leave";
        Exit "app.exit" ["ctrl+d"] "Leave, when the editor is empty";
        Suspend "app.suspend" ["ctrl+z"] "Stop, until the shell says to go on";
        FollowUp "app.message.followUp" ["alt+enter"] "Send when the work is done";
        Dequeue "app.message.dequeue" ["alt+up"] "Take what waits back into the editor";
        ThinkingCycle "app.thinking.cycle" ["shift+tab"] "The next level of thinking";
        ThinkingToggle "app.thinking.toggle" ["ctrl+t"] "Show thinking and output in full from now on, or fold them";
        ToolsExpand "app.tools.expand" ["ctrl+o"] "Show thinking and output in full from now on, or fold them";
        ModelSelect "app.model.select" ["ctrl+l"] "Choose a model";
        ModelNext "app.model.cycleForward" ["ctrl+p"] "The next model";
        ModelPrevious "app.model.cycleBackward" ["ctrl+shift+p"] "The model before";
        HistorySearch "app.history.search" ["ctrl+r"] "Look through what was sent before";
        ExternalEditor "app.editor.external" ["ctrl+g"] "Write in $VISUAL or $EDITOR";
        PasteImage "app.clipboard.pasteImage" ["ctrl+v"] "Put the path of the image on the clipboard";
        Copy "app.message.copy" ["ctrl+x"] "Copy the last answer";
        NewSession "app.session.new" [] "A new session";
        Tree "app.session.tree" [] "The session's tree";
        Fork "app.session.fork" [] "A new session from an earlier message";
        Resume "app.session.resume" [] "Go on with another session";
        Help "app.help" ["f1"] "This help; so does ? in the empty editor";
    }
    Tree {
        TreeFold "app.tree.foldOrUp" ["left", "ctrl+left", "alt+left"] "Fold the branch";
        TreeUnfold "app.tree.unfoldOrDown" ["right", "ctrl+right", "alt+right"] "Unfold it";
        TreePreview "app.tree.preview" ["space"] "Show the whole node beside the tree";
        TreeFilter "app.tree.filter.cycleForward" ["tab"] "The next filter";
        TreeLabel "app.tree.editLabel" ["alt+l", "ctrl+l"] "Label it";
        TreeCompare "app.tree.compare" ["alt+d"] "Mark a branch; on another one, compare both";
        TreeWider "app.tree.wider" ["ctrl+a"] "The sessions of this directory; then those of all directories and agents";
    }
}
